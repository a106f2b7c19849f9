// Package node is one twotier server without its network side: it takes an operation, decides who answers it, and keeps
// the parts running in the right order.
//
// # Where an operation goes
//
// In two-tier mode every key has an owner, by the ring's table: that node's syncer.Counter decides, in memory (route.go).
// Another node sends the operation to the owner (peers.go), which carries it out or names who does (serve.go); nothing is forwarded twice.
// A node whose memory is full of counts that can't be evicted serves new keys from Redis. An owner that can't be reached is stood in for:
// the operation is counted here, and the two meet in the store. An acquire whose keys have several owners reserves at each
// (package multiowner). A key that is too hot for one owner is counted by all nodes for a while (package hotkeys), and a refusal is remembered
// for a moment (package refusals).
//
// In Redis mode every operation is a script in Redis; nodes change between the modes together (package modes).
//
// # Who owns what
//
// See package ownership: a node takes over what the table gives to it by asking whoever has it, and
// gives what it has to the owner by its own table only.
//
// The time that events are counted at follows the store's clock, see package storeclock. The package knows no wire format: package peer
// has that of the nodes, httpapi that of everybody else.
package node
