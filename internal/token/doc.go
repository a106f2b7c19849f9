// Package token defines access rights: bearer tokens, each with a name, roles and namespaces.
//
// A [Set] is read from a file of lines
//
//	# name    SHA-256 of the token   roles        namespaces
//	checkout  sha256:8f43...         count,read   default,login
//	scraper   sha256:02ab...         read         *
//
// The fourth field may be left out and then means all namespaces. The roles are count (add,
// acquire), read (count, series, top, the metrics, the cluster) and admin (reset, the mode,
// profiles). None of them implies another.
//
// The file has hashes only, so reading it does not reveal the tokens. Plain SHA-256 is enough: a
// token made by [New] has 256 random bits, which nobody can guess. A slow password hash would add
// no protection and cost every request. A presented token is hashed before it is looked up, so the
// time of the look-up depends on a digest that nobody can choose.
//
// A Set is immutable and safe for concurrent use. A [Store] holds the current one.
package token
