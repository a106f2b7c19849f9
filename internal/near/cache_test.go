package near_test

import (
	"fmt"
	"testing"
	"time"

	"twotier/internal/near"
)

func open(t *testing.T, values int64) *near.Cache[int] {
	t.Helper()
	c, err := near.New[int](values)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestValueIsKeptUntilItsTime(t *testing.T) {
	c := open(t, 10)
	c.Put([]byte("a"), 1, time.Hour)
	c.Put([]byte("b"), 2, 20*time.Millisecond)
	c.Wait()
	if v, ok := c.Get([]byte("a")); !ok || v != 1 {
		t.Errorf("got %d, %v", v, ok)
	}
	for end := time.Now().Add(10 * time.Second); ; {
		if _, ok := c.Get([]byte("b")); !ok {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a value outlives its time")
		}
	}
	c.Forget([]byte("a"))
	if v, ok := c.Get([]byte("a")); ok {
		t.Errorf("got %d after it was forgotten", v)
	}
}

func TestNumberOfValuesIsBounded(t *testing.T) {
	c := open(t, 100)
	for i := range 10_000 {
		c.Put(fmt.Append(nil, i), i, time.Hour)
	}
	c.Wait()
	kept := 0
	for i := range 10_000 {
		if v, ok := c.Get(fmt.Append(nil, i)); ok {
			kept++
			if v != i {
				t.Fatalf("%d is %d", i, v)
			}
		}
	}
	if kept > 100 || kept == 0 {
		t.Errorf("%d of 10,000 values are kept, want 1 to 100", kept)
	}
}
