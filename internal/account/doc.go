// Package account bounds the concurrent use of a listener by its clients: their connections
// ([Conns]), and memory or any other countable resource ([Account]). The use by one network address
// has a separate bound, so that a greedy client leaves something for the others. Listeners that
// serve their connections themselves share the defaults of their options, the accept loop and the
// wait at their end.
//
// All methods may be called from several goroutines.
package account
