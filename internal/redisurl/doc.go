// Package redisurl is the one place that reads and shows URLs of Redis:
//
//	redis://[user:password@]host[:port][/database]
//	unix://[user:password@]/path[?db=database]
//	redis+cluster://[user:password@]host[:port],host[:port]
//	redis+sentinel://[user:password@]host[:port],host[:port]/master[/database]
//
// and each but the second with rediss in place of redis, for TLS. A database may be written as ?db=
// everywhere. Sentinels that ask for credentials of their own are given those of
// ?sentinel-user=NAME&sentinel-password=SECRET. Without a port it is 6379, and 26379 of sentinels.
//
// No error of the package shows a password, and [Mask] removes it from any text, be it a URL or
// not. The driver's own parsers (redis.ParseURL and its kin) do not serve: their errors repeat the
// password, they take one host where we take a list, and a parameter such as max_retries=3 would
// have the driver send twice what may be counted once.
//
// The package connects to nothing and does not know the driver.
package redisurl
