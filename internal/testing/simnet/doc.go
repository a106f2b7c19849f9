// Package simnet is a network in memory, for tests of a whole cluster in one process under
// testing/synctest. It has packets and streams for gossip, and calls for messages between nodes,
// all with delay, loss, and cuts in either direction.
//
// A [Net] has hosts. A host has at most one process at a time, which can be frozen and whose
// messages can be slowed down. A cut loses messages that are sent while it lasts. A caller whose
// message was lost learns nothing until it gives up, and a message may arrive after its sender has
// given up. Calls to a host without a process are refused at once, as a kernel does. For protocols
// over connections there are [Host.Listen] and [Host.Dial], whose connections break at times.
//
// All random choices come from the seed of the Net. All methods are safe for concurrent use.
package simnet
