// Package durations counts how long something takes, in the buckets of Prometheus's native
// histograms: eight to each doubling, so that a quantile is off by less than a tenth.
//
// A [Histogram] has a fixed size, no lock, and costs two additions for each duration; it is made
// for what happens once for many requests, such as an exchange with Redis. It does not forget: what
// happened within some minutes is the difference of two snapshots, which is for who scrapes them.
package durations
