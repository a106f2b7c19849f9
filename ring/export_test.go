package ring

// NewTableAfter is the table of members beside the one before it.
func NewTableAfter(before *Table, members []Member, self string, partitions int,
	seed uint64) (*Table, error) {
	return newTable(members, self, partitions, seed, before)
}
