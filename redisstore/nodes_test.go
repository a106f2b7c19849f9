package redisstore_test

import (
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
)

// TestEntriesOfNodesRunOut lists processes in Redis, one of which is not renewed. The list ends
// with its last entry, and a field of another form is no entry.
func TestEntriesOfNodesRunOut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	nodes, direct := open(t, redisstore.Options{URL: server.URL()}).Nodes(), server.Client(t)
	renew := func(name string, lease time.Duration) (list []string) {
		all, err := nodes.Renew(t.Context(), name, "it is "+name, lease)
		must.Succeed(t, err)
		for _, r := range all {
			list = append(list, r.Name)
			if r.Left <= 0 || r.Left > time.Minute || r.Until == 0 || r.Text != "it is "+r.Name {
				t.Errorf("%+v", r)
			}
		}
		slices.Sort(list)
		return list
	}
	renew("a", 100*time.Millisecond)
	must.Succeed(t, direct.HSet(t.Context(), "tt:nodes", "other", "form").Err())
	for !slices.Equal(renew("b", time.Minute), []string{"b"}) { // until a has run out
		time.Sleep(10 * time.Millisecond)
	}
	if list := renew("a", time.Minute); !slices.Equal(list, []string{"a", "b"}) {
		t.Errorf("listed: %v", list)
	}
	must.Succeed(t, nodes.Remove(t.Context(), "a", "never"))
	if list := renew("b", time.Minute); !slices.Equal(list, []string{"b"}) {
		t.Errorf("listed: %v", list)
	}
	ttl, err := direct.PTTL(t.Context(), "tt:nodes").Result()
	if err != nil || ttl <= 0 || ttl > time.Minute {
		t.Errorf("the list lives for %v, %v", ttl, err)
	}
}
