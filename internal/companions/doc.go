// Package companions adds the bans of rules, different values, and leases to the checks of
// operations.
//
// A companion is a counter like any other, in a namespace that clients can't write, and in the same
// partition as its key (twotier.BanKey, twotier.ValuesKey, twotier.LeaseKey). So it is decided,
// flushed, handed over, loaded and lost together with the counts of that key, in every mode.
// [Extend] adds the companions of an operation to its checks, and [Extended.ReduceResult] removes
// their results from the answer.
package companions
