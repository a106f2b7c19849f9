package syncer_test

import (
	"context"
	"fmt"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/syncer"
)

// Two counters, usually in two processes, share a store. Each answers from its memory, and reads
// the other's flushed counts when it first uses a key.
func Example() {
	// In a program this is a redisstore.Store, or one that storetest has verified.
	store := embedded.New(embedded.Options{})
	open := func(name string) *syncer.Counter {
		c, err := syncer.New(syncer.Options{Store: store, Writer: name})
		if err != nil {
			panic(err)
		}
		if err := c.Open(context.Background()); err != nil {
			panic(err)
		}
		return c
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	first := open("first")
	key := []byte("alice")
	add := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{Key: key, N: 3}}}
	var res twotier.Result
	if err := first.Do(ctx, &add, &res); err != nil {
		panic(err)
	}
	fmt.Println("counted in", res.Source)
	if err := first.Close(ctx); err != nil { // flushes the pending counts
		panic(err)
	}

	second := open("second")
	acquire := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{
		Key: key, N: 1, Limits: []twotier.Limit{{Window: time.Hour.Milliseconds(), Max: 4}},
	}}}
	for range 2 {
		if err := second.Do(ctx, &acquire, &res); err != nil {
			panic(err)
		}
		fmt.Println(res.Allowed, res.Checks[0].Limits[0].Count)
	}
	fmt.Println("everything flushed:", second.Close(ctx) == nil)
	// Output:
	// counted in memory
	// true 4
	// false 4
	// everything flushed: true
}
