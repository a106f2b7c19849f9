// Package durations is a histogram of durations in the buckets of Prometheus's native histograms:
// eight buckets per doubling, so that a quantile is off by less than a tenth.
//
// A [Histogram] has a fixed size, no lock, and costs two additions per duration. It is made for
// events that serve many requests at once, such as an exchange with Redis. It never forgets: a
// scraper computes the last minutes as the difference of two snapshots.
package durations
