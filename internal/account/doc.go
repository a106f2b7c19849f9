// Package account bounds the concurrent use of a listener by its clients: their connections
// ([Conns]), and memory or any other countable resource ([Account]). The use by one network address
// has a separate bound, so that a greedy client leaves something for the others.
//
// All methods may be called from several goroutines.
package account
