package clustertest

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/proctest"
)

// TestFault11LimitHoldsAfterAPause pauses the owner of a key. Another node fills the key's limit:
// in the owner's place, or after it has taken the key over. Requests wait at the owner when it
// resumes. None of them is admitted, and the owner goes on deciding about its keys.
func TestFault11LimitHoldsAfterAPause(t *testing.T) {
	for name, test := range map[string]struct {
		long   bool
		source string
	}{
		"shorter than its detection": {false, `"source":"fallback"`},
		"longer":                     {true, `"source":"memory"`},
	} {
		t.Run(name, func(t *testing.T) {
			if test.long {
				takesLong(t)
			}
			c := start(t, 2)
			key := c.keyOf(1, "limited")
			body := func(n int) string {
				return fmt.Sprintf(`{"key":%q,"n":%d,"limits":[{"window":"24h","max":60}]}`, key, n)
			}
			c.Nodes[1].MustPost("/v1/acquire", body(20))
			c.Holds(map[string]int64{key: 20})
			c.Nodes[1].Pause()
			if test.long {
				proctest.UntilNil(t, "the other has taken over",
					func() error { return c.Agree([]int{0}) })
			}
			proctest.Until(t, "the other fills the limit", func() bool {
				a := <-asks(c.Nodes[0], body(40))
				t.Logf("while the owner stands still: %s", a.body)
				filled := strings.Contains(a.body, `"allowed":true`)
				if filled && !strings.Contains(a.body, test.source) {
					t.Fatalf("admitted elsewhere: %s", a.body)
				}
				return filled
			})
			var waiting []<-chan answer
			for range 20 {
				waiting = append(waiting, asks(c.Nodes[1], body(1)))
			}
			c.Nodes[1].Resume()
			for _, told := range waiting {
				if a := <-told; strings.Contains(a.body, `"allowed":true`) {
					t.Errorf("admitted beyond the limit: %s", a.body)
				}
			}
			c.Settled()
			other := fmt.Sprintf(`{"key":%q,"limits":[{"window":"24h","max":1000}]}`,
				c.keyOf(1, "other"))
			proctest.Until(t, "the owner decides again", func() bool {
				a := <-asks(c.Nodes[1], other)
				return strings.Contains(a.body, `"source":"memory"`)
			})
			proctest.UntilNil(t, "all is counted once", func() error {
				held, err := c.Same([]string{key})
				if err == nil && held[key] != 60 {
					err = fmt.Errorf("%d are counted, the limit is 60", held[key])
				}
				return err
			})
		})
	}
}
