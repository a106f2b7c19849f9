// Package account bounds what the clients of a door use at a time: their connections ([Conns]), and
// memory or anything else that can be counted ([Account]). What one network address may use is
// bounded apart, so that a greedy client leaves something for the others.
//
// All methods may be called from several goroutines.
package account
