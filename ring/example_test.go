package ring_test

import (
	"fmt"

	"twotier.dev/twotier/ring"
)

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
