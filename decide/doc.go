// Package decide decides operations: may this pass, and what does it count?
//
// A decision is a pure function of an operation, the present, and the knowledge about the key of
// each check ([Key]). It fills in a result and lists the changes of the keys ([Change]).
// Engines fetch the knowledge and carry out the changes: syncer in memory, under the locks of the
// partitions.
//
// An Acquire is decided before it counts, see [Call.Acquire]; an Add counts first, and is compared
// with its limits afterwards, see [Call.CheckReach] and [Call.Compare]. A Count is only compared.
//
// The package knows no locks, clocks, stores or owners, and allocates nothing for a decision unless
// leases refuse it. Whether the knowledge is fresh enough, and whether there is room for a change,
// is for the engine to judge.
package decide
