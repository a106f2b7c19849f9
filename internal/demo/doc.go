// Package demo is a demonstration: traffic to the nodes of a cluster, and a story about it.
//
// [Traffic] has many keys, a few of them busy, from time to time one key that is hotter than all
// others, and logins from many addresses, one of which is an attacker. It counts how many events it
// sends for [Key], and every node must report that number. A request to a node that refuses
// connections goes to the next one.
//
// A [Story] has chapters: the rule against the attacker is off, in shadow, on, and bans; then a
// node is killed, and comes back. Each is announced as it begins and as it ends, and can be
// repeated.
//
// The package calls the nodes through the Go client, one for each, and their URLs for rules; only
// killing and starting one is up to a [Cluster]. A Traffic and a Story are safe for concurrent use,
// except that Open must return before Close is called.
package demo
