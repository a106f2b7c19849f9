// Package simnet is a network in memory, for tests of a whole cluster in one process under
// testing/synctest: packets and streams for gossip, and calls for what nodes say to each other, all
// with delay, loss and cuts in either direction.
//
// A [Net] has hosts, a host has at most one process at a time, which can be frozen, and whose
// messages can be slowed down. What is on its way when a cut begins is lost; a caller whose message
// was lost learns nothing until it gives up, and a message may arrive after its sender has. Calls
// to a host without a process are refused at once, as a kernel does. For what speaks over
// connections there are [Host.Listen] and [Host.Dial], whose connections break at times.
//
// Chance comes from the seed of the Net. All methods may be called at the same time.
package simnet
