package ring_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/simnet"
	"twotier.dev/twotier/ring"
)

var agreement = ring.Agreement{Partitions: 61, Seed: 3, Data: 9}

// village is a cluster of rings on a simulated network.
type village struct {
	t     *testing.T
	net   *simnet.Net
	rings map[string]*ring.Ring // by address
	born  int
}

func newVillage(t *testing.T, w simnet.Weather) *village {
	v := &village{t: t, net: simnet.New(1, w), rings: map[string]*ring.Ring{}}
	t.Cleanup(func() {
		for _, r := range v.rings {
			v.leave(r)
		}
		time.Sleep(time.Minute) // memberlist's goroutines end with their last probe
	})
	return v
}

func (v *village) leave(r *ring.Ring) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = r.Close(ctx)
}

func ip(i int) string { return fmt.Sprintf("10.0.0.%d", i) }

func seed(i int) string { return ip(i) + ":7946" }

// start starts node i, which joins the nodes 1 and 2.
func (v *village) start(i int, change func(*ring.Options)) (*ring.Ring, error) {
	r, err := v.open(context.Background(), i, change)
	if err == nil {
		r.Enter(context.Background())
	}
	return r, err
}

// open is start without Enter.
func (v *village) open(
	ctx context.Context, i int, change func(*ring.Options),
) (*ring.Ring, error) {
	v.born++
	opt := ring.Options{
		ID: fmt.Sprint("n", i), Name: fmt.Sprintf("n%d-%d", i, v.born), Bind: seed(i),
		Join:      []string{seed(1), seed(2)},
		Agreement: agreement, Transport: v.net.Start(ip(i)).Transport(),
	}
	if change != nil {
		change(&opt)
	}
	r, err := ring.New(opt)
	must.Succeed(v.t, err)
	v.rings[ip(i)] = r
	return r, r.Open(ctx, ip(i)+":8080")
}

func (v *village) startAll(n int) {
	v.t.Helper()
	for i := 1; i <= n; i++ {
		_, err := v.start(i, nil)
		must.Succeed(v.t, err)
	}
}

// withNodes runs a story of n nodes that agree, in a bubble.
func withNodes(t *testing.T, n int, story func(t *testing.T, v *village)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, lan())
		v.startAll(n)
		v.agree(3*time.Second, n, v.all()...)
		story(t, v)
	})
}

// all lists the nodes.
func (v *village) all() (nodes []int) {
	for i := range len(v.rings) {
		nodes = append(nodes, i+1)
	}
	return nodes
}

// kill ends node i without an announcement.
func (v *village) kill(i int) {
	v.net.Start(ip(i)).Stop()
	v.leave(v.rings[ip(i)])
	delete(v.rings, ip(i))
}

// agree waits until these nodes have one table with that many members, and returns how long that
// took.
func (v *village) agree(within time.Duration, members int, nodes ...int) time.Duration {
	v.t.Helper()
	began := time.Now()
	for {
		versions := map[uint64]bool{}
		right := true
		for _, i := range nodes {
			t := v.rings[ip(i)].Table()
			versions[t.Version()] = true
			right = right && t.Len() == members
		}
		took := time.Since(began)
		if right && len(versions) == 1 {
			return took
		}
		if took > within {
			for _, i := range nodes {
				t := v.rings[ip(i)].Table()
				v.t.Logf("node %d: version %x, %d members", i, t.Version(), t.Len())
			}
			v.t.Fatalf("no agreement on %d members after %v", members, took)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func lan() simnet.Weather {
	return simnet.Weather{Delay: time.Millisecond, Jitter: time.Millisecond}
}

// TestStartedTogether starts a node before its only seed.
func TestStartedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, lan())
		_, err := v.start(3, func(o *ring.Options) { o.Join = []string{seed(1)} })
		must.Succeed(t, err)
		_, err = v.start(1, func(o *ring.Options) { o.Join = nil })
		must.Succeed(t, err)
		t.Log("they found each other after", v.agree(time.Second, 2, 1, 3))
	})
}

// TestMembersComeAndGo joins, drains, leaves, kills and restarts.
func TestMembersComeAndGo(t *testing.T) {
	withNodes(t, 4, func(t *testing.T, v *village) {
		v.rings[ip(4)].Drain(context.Background())
		took := v.agree(2*time.Second, 4, 1, 2, 3, 4)
		tab := v.rings[ip(1)].Table()
		if at := tab.Find("n4-4"); !tab.Member(at).Draining || tab.OwnedCount(at) != 0 {
			t.Errorf("the draining member owns %d partitions", tab.OwnedCount(at))
		}
		t.Log("draining known after", took)
		v.leave(v.rings[ip(4)])
		t.Log("leave known after", v.agree(2*time.Second, 3, 1, 2, 3))

		v.kill(3)
		t.Log("crash known after", v.agree(30*time.Second, 2, 1, 2))
		_, err := v.start(3, nil)
		must.Succeed(t, err)
		t.Log("restart known after", v.agree(3*time.Second, 3, 1, 2, 3))
		if m := v.rings[ip(2)].Table().Member(2); m.ID != "n3" || m.Address != ip(3)+":8080" {
			t.Errorf("member 3 is %v", m)
		}
	})
}

// TestAQuickRestartReplacesTheOldProcess restarts a node before anybody has noticed that it died.
func TestAQuickRestartReplacesTheOldProcess(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, v *village) {
		v.kill(2)
		time.Sleep(10 * time.Millisecond)
		_, err := v.start(2, nil)
		must.Succeed(t, err)
		v.agree(time.Second, 3, 1, 2, 3)
		if tab := v.rings[ip(1)].Table(); tab.Find("n2-4") < 0 || tab.Find("n2-2") >= 0 {
			t.Error("the old process is still a member")
		}
	})
}

// TestPartitionsOfAnyLengthHeal cuts the network for far longer than memberlist looks for the dead.
func TestPartitionsOfAnyLengthHeal(t *testing.T) {
	for _, length := range []time.Duration{15 * time.Second, 10 * time.Minute} {
		t.Run(length.String(), func(t *testing.T) {
			withNodes(t, 5, func(t *testing.T, v *village) {
				v.net.Split([]string{ip(1), ip(2), ip(3)}, []string{ip(4), ip(5)})
				t.Log("split known after", v.agree(time.Minute, 3, 1, 2, 3), "and",
					v.agree(time.Minute, 2, 4, 5))
				time.Sleep(length)
				v.net.Heal()
				t.Log("healed after", v.agree(time.Minute, 5, 1, 2, 3, 4, 5))
			})
		})
	}
}

// TestOneWayCutsDoNotFlap cuts one direction between two nodes: the others vouch for both, and the
// table stays.
func TestOneWayCutsDoNotFlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, lan())
		changes := 0
		v.startAll(4)
		if _, err := v.start(5, func(o *ring.Options) {
			o.OnChange = func(*ring.Table) { changes++ }
		}); err != nil {
			t.Fatal(err)
		}
		v.agree(3*time.Second, 5, 1, 2, 3, 4, 5)
		synctest.Wait()
		before := changes
		v.net.Cut(ip(2), ip(3), simnet.All)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if changes != before {
			t.Errorf("the table changed %d times", changes-before)
		}
	})
}

// TestLostPacketsDoNotFlap loses up to half of all packets.
func TestLostPacketsDoNotFlap(t *testing.T) {
	for _, loss := range []int{100, 300, 500} {
		t.Run(fmt.Sprintf("%d%%", loss/10), func(t *testing.T) {
			withNodes(t, 5, func(t *testing.T, v *village) {
				w := lan()
				w.PacketLoss = loss
				v.net.SetWeather(w)
				seen := map[int]int{}
				for range 600 {
					time.Sleep(500 * time.Millisecond)
					seen[v.rings[ip(1)].Table().Len()]++
				}
				t.Logf("members seen by node 1, times: %v", seen)
				if seen[5] < 590 {
					t.Errorf("all five were seen %d of 600 times", seen[5])
				}
			})
		})
	}
}

// TestNodesThatDoNotFitAreRefused has nodes with another number of partitions, another hash seed or
// other hash tags try to join.
func TestNodesThatDoNotFitAreRefused(t *testing.T) {
	for name, change := range map[string]func(*ring.Options){
		"partitions": func(o *ring.Options) { o.Agreement.Partitions = 62 },
		"hash seed":  func(o *ring.Options) { o.Agreement.Seed = 4 },
		"hash tags":  func(o *ring.Options) { o.Agreement.Data = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			withNodes(t, 2, func(t *testing.T, v *village) {
				_, err := v.start(3, change)
				if !errors.Is(err, ring.ErrRefused) {
					t.Fatalf("joined with other %s: %v", name, err)
				}
				t.Log(err)
				time.Sleep(time.Minute)
				v.agree(time.Second, 2, 1, 2)
			})
		})
	}
}

// TestAnotherSecretIsTurnedAway has a node without the secret, and one with another, try to join.
func TestAnotherSecretIsTurnedAway(t *testing.T) {
	for _, secret := range []string{"", "wrong"} {
		synctest.Test(t, func(t *testing.T) {
			v := newVillage(t, lan())
			for i := 1; i <= 2; i++ {
				if _, err := v.start(i, func(o *ring.Options) {
					o.Secret = []byte("right")
				}); err != nil {
					t.Fatal(err)
				}
			}
			_, err := v.start(3, func(o *ring.Options) { o.Secret = []byte(secret) })
			if !errors.Is(err, ring.ErrNotJoined) {
				t.Fatalf("secret %q: %v", secret, err)
			}
			t.Log(err)
			time.Sleep(time.Minute)
			v.agree(time.Second, 2, 1, 2)
		})
	}
}

// TestZonesReachEverybody starts nodes with different time-zone data, and one that announces none.
func TestZonesReachEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, lan())
		want := []string{"2025c", "2031za", ""}
		for i, zones := range want {
			_, err := v.start(i+1, func(o *ring.Options) { o.Zones = zones })
			must.Succeed(t, err)
		}
		v.agree(3*time.Second, 3, 1, 2, 3)
		for _, i := range []int{1, 2, 3} {
			for j, zones := range want {
				if m := v.rings[ip(i)].Table().Member(j); m.Zones != zones {
					t.Errorf("node %d sees zones %q of node %d", i, m.Zones, j+1)
				}
			}
			if self := v.rings[ip(i)].Self(); self.Zones != want[i-1] {
				t.Errorf("node %d announces %q", i, self.Zones)
			}
		}
	})
	if _, err := ring.New(ring.Options{ID: "a", Agreement: ring.Agreement{Partitions: 7},
		Zones: "2025c-more"}); err == nil {
		t.Error("too long a version was accepted")
	}
}

// TestAnnouncementsAtOnce lets a node announce several changes at the same time: all members learn
// of the last one. The race detector sees the rest.
func TestAnnouncementsAtOnce(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, v *village) {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if err := v.rings[ip(2)].SetTag(context.Background(), fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Go(func() { v.rings[ip(2)].Drain(context.Background()) })
		all.Wait()
		time.Sleep(time.Second)
		want := v.rings[ip(2)].Self()
		for _, i := range []int{1, 3} {
			if m := v.rings[ip(i)].Table().Member(1); m.Tag != want.Tag || !m.Draining {
				t.Errorf("node %d sees %+v, want %+v", i, m, want)
			}
		}
	})
}

// TestClose closes twice, and once without having been opened.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, lan())
		v.startAll(1)
		r := v.rings[ip(1)]
		if err := errors.Join(r.Close(context.Background()),
			r.Close(context.Background())); err != nil {
			t.Error(err)
		}
		if err := r.Open(context.Background(), ip(1)+":8080"); err == nil {
			t.Error("opened after Close")
		}
		never, err := ring.New(ring.Options{ID: "x", Agreement: agreement})
		must.Succeed(t, err)
		if err := never.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestClosingIsNoChange closes nodes as soon as they are open: none makes a table without itself.
func TestClosingIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, lan())
		var log bytes.Buffer
		for range 100 {
			r, err := v.start(1, func(o *ring.Options) {
				o.Logger = slog.New(slog.NewTextHandler(&log,
					&slog.HandlerOptions{Level: slog.LevelError}))
				o.OnChange = func(t *ring.Table) {
					if t.Self() < 0 {
						v.t.Error("a table without the node itself")
					}
				}
			})
			must.Succeed(t, err)
			v.leave(r)
		}
		if log.Len() > 0 {
			t.Errorf("the log has\n%s", log.String())
		}
	})
}

func TestOptions(t *testing.T) {
	bad := map[string]ring.Options{
		"no ID":         {Agreement: agreement},
		"no partitions": {ID: "x"},
		"long tag": {ID: "x", Agreement: agreement,
			Tag: string(slices.Repeat([]byte("x"), 65))},
	}
	for name, opt := range bad {
		if _, err := ring.New(opt); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	r, err := ring.New(ring.Options{ID: "x", Agreement: agreement})
	must.Succeed(t, err)
	for _, address := range []string{"", "host", "host:0", "host:x"} {
		if err := r.Open(context.Background(), address); err == nil {
			t.Errorf("address %q: no error", address)
		}
	}
}

// TestTwinsAreSeenBeforeTheyOwnAnything starts a process under the ID of a member. It learns of
// that member from the first node that it meets, while the others' tables stay as they are; once it
// has entered, it replaces the member, because it is younger.
func TestTwinsAreSeenBeforeTheyOwnAnything(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, v *village) {
		before := v.rings[ip(1)].Table().Version()
		twin, err := v.open(t.Context(), 7, func(o *ring.Options) {
			o.ID, o.Name, o.Join = "n2", "n2-twin", []string{seed(1)}
		})
		must.Succeed(t, err)
		if twins := twin.Twins(); len(twins) != 1 || twins[0].Address != ip(2)+":8080" {
			t.Errorf("the twin knows of %v", twins)
		}
		time.Sleep(30 * time.Second)
		for i := 1; i <= 3; i++ {
			if table := v.rings[ip(i)].Table(); table.Version() != before {
				t.Errorf("node %d has another table: %d members", i, table.Len())
			}
		}
		twin.Enter(t.Context())
		time.Sleep(time.Second)
		if table := v.rings[ip(1)].Table(); table.Len() != 3 || table.Find("n2-twin") < 0 {
			t.Error("the younger process has not taken over")
		}
	})
}

// TestTwinsAreSeenPastThoseWhoKnowNobody starts processes under the ID of a member. Each has a seed
// that starts at the same time, has not met the member, and answers first now and then.
func TestTwinsAreSeenPastThoseWhoKnowNobody(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, v *village) {
		open := func(host int, id string, join ...string) *ring.Ring {
			r, err := v.open(t.Context(), host, func(o *ring.Options) { o.ID, o.Join = id, join })
			must.Succeed(t, err)
			return r
		}
		v.net.SetWeather(simnet.Weather{Delay: time.Millisecond, Jitter: 100 * time.Millisecond})
		for i := 20; i < 30; i++ {
			open(i, fmt.Sprint("n", i))
			twins := open(i+20, "n2", seed(i), seed(2)).Twins()
			if !slices.ContainsFunc(twins, func(m ring.Member) bool {
				return m.Address == ip(2)+":8080"
			}) {
				t.Errorf("twin %d knows of %v", i, twins)
			}
		}
	})
}

// TestTheDeadDoNotHoldUpTheLiving has twenty members die whose hosts swallow packets. Two separated
// members find each other about as soon as if nobody else was missing.
func TestTheDeadDoNotHoldUpTheLiving(t *testing.T) {
	race.SkipLong(t)
	withNodes(t, 2, func(t *testing.T, v *village) {
		var dead []string
		for i := 100; i < 120; i++ {
			_, err := v.start(i, nil)
			must.Succeed(t, err)
			dead = append(dead, ip(i))
		}
		v.net.Split([]string{ip(1), ip(2)}, dead)
		v.agree(5*time.Minute, 2, 1, 2)
		v.net.Split([]string{ip(1)}, []string{ip(2)})
		time.Sleep(2 * time.Minute)
		v.net.Heal()
		v.net.Split([]string{ip(1), ip(2)}, dead)
		if took := v.agree(20*time.Minute, 2, 1, 2); took > 30*time.Second {
			t.Errorf("together again after %v", took)
		}
		v.net.Heal()
	})
}
