package ring_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/ring"
)

const partitions = 257

func members(n int) (list []ring.Member) {
	for i := range n {
		list = append(list, ring.Member{ID: fmt.Sprintf("node-%d", i),
			Name: fmt.Sprintf("node-%d-x", i), Born: int64(i)})
	}
	return list
}

func table(t testing.TB, list []ring.Member) *ring.Table {
	t.Helper()
	tab, err := ring.NewTable(list, "", partitions, 7)
	must.Succeed(t, err)
	return tab
}

func owner(t *ring.Table, p int) string { return t.Member(t.Owner(p)).ID }

// TestI4OwnershipIsAFunctionOfTheMembers makes tables of the same members in any order and for any
// self.
func TestI4OwnershipIsAFunctionOfTheMembers(t *testing.T) {
	list := members(7)
	want := table(t, list)
	for range 20 {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		got, err := ring.NewTable(list, list[0].Name, partitions, 7)
		must.Succeed(t, err)
		if got.Version() != want.Version() {
			t.Fatal("the same members, another version")
		}
		for p := range partitions {
			if owner(got, p) != owner(want, p) {
				t.Fatalf("partition %d: owner %s, want %s", p, owner(got, p), owner(want, p))
			}
		}
		if self := got.Member(got.Self()).Name; self != list[0].Name {
			t.Fatalf("self is %s, want %s", self, list[0].Name)
		}
	}
	other, err := ring.NewTable(list, "", partitions, 8)
	must.Succeed(t, err)
	if other.Version() == want.Version() {
		t.Error("another seed, the same version")
	}
}

// TestARestartKeepsWhatANodeOwned replaces a process by another with the same ID.
func TestARestartKeepsWhatANodeOwned(t *testing.T) {
	list := members(5)
	before := table(t, list)
	list[2].Name, list[2].Born = "node-2-y", 99
	after := table(t, list)
	for p := range partitions {
		if owner(before, p) != owner(after, p) {
			t.Fatalf("partition %d moved from %s to %s", p, owner(before, p), owner(after, p))
		}
	}
	if before.Version() == after.Version() {
		t.Error("another process, the same version")
	}
}

// TestTheYoungerOfTwoWithOneIDCounts still lists the old process as a member, as after a crash.
func TestTheYoungerOfTwoWithOneIDCounts(t *testing.T) {
	list := append(members(3), ring.Member{ID: "node-1", Name: "node-1-y", Born: 50})
	tab, err := ring.NewTable(list, "node-1-x", partitions, 7)
	must.Succeed(t, err)
	if tab.Len() != 3 || tab.Find("node-1-y") < 0 || tab.Find("node-1-x") >= 0 || tab.Self() != -1 {
		t.Errorf("%d members, self %d", tab.Len(), tab.Self())
	}
	for p := range partitions {
		if tab.OwnedBySelf(p) {
			t.Fatalf("partition %d belongs to a process that has been replaced", p)
		}
	}
}

// TestStartingMembersOwnNothing has one process start under a new ID, and another under the ID of a
// member: neither changes the owners, and the second is no member.
func TestStartingMembersOwnNothing(t *testing.T) {
	there := []ring.Member{{ID: "a", Name: "a-1", Born: 1},
		{ID: "b", Name: "b-1", Born: 2, Draining: true}}
	before, err := ring.NewTable(there, "a-1", 31, 0)
	must.Succeed(t, err)
	starting := []ring.Member{{ID: "c", Name: "c-1", Born: 9, Starting: true},
		{ID: "a", Name: "a-2", Born: 9, Starting: true}}
	after, err := ring.NewTable(append(starting, there...), "a-1", 31, 0)
	must.Succeed(t, err)
	for p := range 31 {
		if before.Member(before.Owner(p)).Name != "a-1" ||
			after.Member(after.Owner(p)).Name != "a-1" {
			t.Fatalf("partition %d has another owner", p)
		}
	}
	if after.Find("a-2") >= 0 || after.Find("c-1") < 0 ||
		after.OwnedCount(after.Find("c-1")) != 0 ||
		after.Version() == before.Version() {
		t.Errorf("%d members", after.Len())
	}
	alone, err := ring.NewTable(starting[:1], "c-1", 31, 0)
	if err != nil || alone.OwnedCount(0) != 31 {
		t.Errorf("a lone node owns nothing: %v", err)
	}
}

func TestDrainingMembersOwnNothing(t *testing.T) {
	list := members(3)
	list[0].Draining = true
	tab := table(t, list)
	if tab.Len() != 3 || tab.OwnedCount(0) != 0 ||
		tab.OwnedCount(1)+tab.OwnedCount(2) != partitions {
		t.Errorf("owned: %d, %d, %d", tab.OwnedCount(0), tab.OwnedCount(1), tab.OwnedCount(2))
	}
	without := table(t, list[1:])
	for p := range partitions {
		if owner(tab, p) != owner(without, p) {
			t.Fatalf("partition %d moves once more when the member is gone", p)
		}
	}
	for i := range list {
		list[i].Draining = true
	}
	if all := table(t, list); all.OwnedCount(0)+all.OwnedCount(1)+all.OwnedCount(2) != partitions {
		t.Error("with all members draining somebody must own what there is")
	}
}

func TestNoTable(t *testing.T) {
	for _, tc := range []struct{ members, partitions int }{{0, 10}, {3, 0},
		{ring.MaxMembers + 1, 10}} {
		if _, err := ring.NewTable(members(tc.members), "", tc.partitions, 0); err == nil {
			t.Errorf("%d members, %d partitions: no error", tc.members, tc.partitions)
		}
	}
}

// TestMovement prints how evenly partitions are spread, how many move when a node joins, and the
// least possible number of moves. docs/cluster.md shows it.
func TestMovement(t *testing.T) {
	t.Log("nodes  partitions of a node: fewest  most  (mean)   moved by one more node  (at least)")
	for _, n := range []int{3, 10, 30, 100} {
		before, after := table(t, members(n)), table(t, members(n+1))
		var counts []int
		for i := range before.Len() {
			counts = append(counts, before.OwnedCount(i))
		}
		moved := 0
		for p := range partitions {
			if owner(before, p) != owner(after, p) {
				moved++
			}
		}
		mean, least := float64(partitions)/float64(n), float64(partitions)/float64(n+1)
		t.Logf("%5d  %29d  %4d  (%5.1f)  %24.1f %%  (%5.1f %%)", n, slices.Min(counts),
			slices.Max(counts), mean,
			100*float64(moved)/partitions, 100*least/partitions)
		if float64(slices.Max(counts)) > 1.1*mean+1 {
			t.Errorf("%d nodes: one owns %d partitions, more than 1.1 times the mean %.1f", n,
				slices.Max(counts), mean)
		}
		if float64(moved) > 4*least {
			t.Errorf("%d nodes: one more moves %d partitions, at least %.1f have to",
				n, moved, least)
		}
	}
}

func BenchmarkOwner(b *testing.B) {
	tab := table(b, members(10))
	p, sum := 0, 0
	for b.Loop() {
		sum += tab.Owner(p)
		if p++; p == partitions {
			p = 0
		}
	}
	_ = sum
}

func BenchmarkNewTable(b *testing.B) {
	for _, n := range []int{3, 30, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			list := members(n)
			for b.Loop() {
				table(b, list)
			}
		})
	}
}

// BenchmarkNextTable replaces one member by another each time.
func BenchmarkNextTable(b *testing.B) {
	for _, n := range []int{3, 30, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			list, cache := members(n), new(ring.Placements)
			for i := 0; b.Loop(); i++ {
				list[n-1].ID = fmt.Sprint("replaced-", i)
				_, err := ring.NewCachedTable(list, list[0].Name, partitions, 7, cache)
				must.Succeed(b, err)
			}
		})
	}
}

// TestATableIsTheSameWhateverWasBefore has members come, go, drain, start, restart and change their
// announcements: a table never depends on cached placements.
func TestATableIsTheSameWhateverWasBefore(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	list := members(3)
	var cache ring.Placements
	for step := range 100 {
		m := &list[rnd.IntN(len(list))]
		switch rnd.IntN(6) {
		case 0:
			m.Draining = !m.Draining
		case 1:
			m.Starting = !m.Starting
		case 2:
			m.Tag += "."
		case 3:
			m.Name, m.Born = fmt.Sprint(m.ID, ".", step), m.Born+1
		case 4:
			id := fmt.Sprint("x", rnd.IntN(100))
			list = append(list, ring.Member{ID: id, Name: fmt.Sprint(id, ".", step),
				Born: int64(step)})
		case 5:
			if len(list) > 2 {
				list = slices.Delete(list, 0, 1)
			}
		}
		self := list[0].Name
		want, err := ring.NewTable(list, self, 61, 7)
		must.Succeed(t, err)
		cached, err := ring.NewCachedTable(list, self, 61, 7, &cache)
		must.Succeed(t, err)
		if !reflect.DeepEqual(cached, want) {
			t.Fatalf("step %d: a table of %+v differs with a cache", step, list)
		}
	}
}

// TestPlacementsAreBounded puts more into a cache of placements than it holds.
func TestPlacementsAreBounded(t *testing.T) {
	var cache ring.Placements
	if n := cache.Fill(ring.MaxPlacements); n != ring.MaxPlacements {
		t.Errorf("%d placements are cached of %d", n, ring.MaxPlacements)
	}
	if n := cache.Fill(3 * ring.MaxPlacements / 2); n > ring.MaxPlacements {
		t.Errorf("%d placements are cached, want at most %d", n, ring.MaxPlacements)
	}
}

// Nodes that see the same members have the same owners, without asking each other.
func ExampleNewTable() {
	members := []ring.Member{
		{ID: "a", Name: "a-1", Address: "10.0.0.1:8080"},
		{ID: "b", Name: "b-1", Address: "10.0.0.2:8080"},
		{ID: "c", Name: "c-1", Address: "10.0.0.3:8080"},
	}
	table, err := ring.NewTable(members, "a-1", 257, 0)
	if err != nil {
		panic(err)
	}
	other, err := ring.NewTable([]ring.Member{members[2], members[0], members[1]}, "c-1", 257, 0)
	if err != nil {
		panic(err)
	}
	const partition = 17
	fmt.Println("the same owner:", table.Member(table.Owner(partition)).ID ==
		other.Member(other.Owner(partition)).ID)
	fmt.Println("the same version:", table.Version() == other.Version())
	fmt.Println("partitions:", table.OwnedCount(0)+table.OwnedCount(1)+table.OwnedCount(2))
	// Output:
	// the same owner: true
	// the same version: true
	// partitions: 257
}
