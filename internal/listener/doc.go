// Package listener is the life of a server's connections, whatever their protocol: it opens the
// sockets, accepts connections within the bounds of [Conns], turns others away, and at the end
// drains the connections and waits for them. Servers that a library gives its own accept loop
// ([Options].Run) have the same bounds, and drain as the library does.
//
// An [Account] bounds memory, or any other countable resource, that clients use at a time. The use
// by one network address has a separate bound, so that a greedy client leaves something for others.
// [Limits] are the options that all servers have.
//
// All methods may be called from several goroutines.
package listener
