// Package token says who may do what: bearer tokens, each with a name, roles and namespaces.
//
// A [Set] is read from a file of lines
//
//	# name    SHA-256 of the token   roles        namespaces
//	checkout  sha256:8f43...         count,read   default,login
//	scraper   sha256:02ab...         read         *
//
// in which the fourth field may be left out, for all namespaces. The roles are count (add,
// acquire), read (count, series, top, the metrics, the cluster) and admin (reset, the mode,
// profiles). None implies another.
//
// The file has hashes only, so that who reads it can't use them. They are plain SHA-256: a token
// made by [New] has 256 random bits, which nobody finds by trying, so a slow hash would protect
// nothing and cost every request what it protects passwords with. What is presented is hashed
// before it is looked up, so the time of a look-up depends on a digest that nobody can steer.
//
// A Set never changes, and may be asked by any number of goroutines. A [Store] holds the present
// one.
package token
