package peer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// distant is a transport to several servers by address, each with a delay before it answers.
type distant map[string]struct {
	server *peer.Server
	delay  time.Duration
}

func (d distant) Send(ctx context.Context, address string, message []byte) ([]byte, error) {
	to := d[address]
	if to.server == nil {
		return nil, rpc.ErrUnreachable
	}
	select {
	case <-time.After(to.delay):
		return to.server.Handle(ctx, message)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestGroupsDoNotWaitForEachOther forwards groups of one batch to a node that answers soon, one
// that answers late, one that never does and one that is gone: each group is over as soon as it can
// be, and the work done meanwhile comes before the first.
func TestGroupsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := distant{}
		for name, delay := range map[string]time.Duration{"soon": time.Millisecond,
			"late": 100 * time.Millisecond, "never": time.Hour} {
			at := d[name]
			at.delay = delay
			at.server = peer.NewServer(peer.ServerOptions{Self: name, Node: yes{}})
			d[name] = at
		}
		c, err := peer.NewClient(peer.ClientOptions{Self: "a", Transport: d})
		if err != nil {
			t.Fatal(err)
		}
		names := []string{"never", "late", "gone", "soon"}
		groups := make([]rpc.Group, len(names))
		for i, name := range names {
			groups[i].To = &ring.Member{ID: name, Name: name, Address: name}
		}
		ops, res := make([]twotier.Op, 40), make([]twotier.Result, 40)
		for i := range ops {
			ops[i].Checks = []twotier.Check{{Key: fmt.Append(nil, i), N: 1}}
			g := &groups[i%len(groups)]
			g.At = append(g.At, i)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var order []string
		c.DoAll(ctx, groups, ops, res,
			func() { order = append(order, "meanwhile") },
			func(i int) { order = append(order, names[i]) })
		if want := []string{"meanwhile", "gone", "soon", "late", "never"}; !slices.Equal(order,
			want) {
			t.Errorf("over in the order %v, want %v", order, want)
		}
		for i, name := range names {
			for _, at := range groups[i].At {
				err, answered := res[at].Err, name == "soon" || name == "late"
				if (err == nil) != answered || res[at].Allowed != answered ||
					errors.Is(err, rpc.ErrUnreachable) != (name == "gone") {
					t.Errorf("%s: %v, allowed %v", name, err, res[at].Allowed)
				}
			}
		}
		_ = c.Close(context.Background())
	})
}
