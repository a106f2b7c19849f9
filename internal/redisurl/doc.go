// Package redisurl parses Redis URLs, and masks them for display, for all other packages. A URL has
// one of these forms:
//
//	redis://[user:password@]host[:port][/database]
//	unix://[user:password@]/path[?db=database]
//	redis+cluster://[user:password@]host[:port],host[:port][/database]
//	redis+sentinel://[user:password@]host[:port],host[:port]/master[/database]
//
// All but the second may have rediss in place of redis, for TLS. All may have ?db=DATABASE.
// Credentials for the sentinels themselves go into ?sentinel-user=NAME&sentinel-password=SECRET.
// The default port is 6379, and 26379 for sentinels.
//
// No error of the package shows a password, and [Mask] removes passwords from any text, even if it
// is not a URL. The driver's parsers (such as redis.ParseURL) can't be used: their errors repeat
// the password, they accept one host rather than a list, and a parameter such as max_retries=3
// would make the driver resend commands that must be counted once.
//
// The package makes no connections and does not use the driver. Its functions have no state and are
// safe for concurrent use.
package redisurl
