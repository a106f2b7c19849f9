// Package demo sends traffic to the nodes of a cluster so that a demonstration has something to
// show: many keys, a few of them busy, limits that are reached, and from time to time one key that
// is hotter than all others.
//
// It only knows the nodes by their URLs, and talks to them over HTTP like any client. It counts how
// many events it sends for [Key], and every node must report that number. A [Traffic] is safe for
// concurrent use, except that Open must return before Close is called.
package demo
