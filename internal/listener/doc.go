// Package listener is the life of a server's connections, whatever their protocol: it opens the
// sockets, accepts connections within the bounds of package account, turns others away, and at the
// end drains the connections and waits for them. Servers that a library gives its own accept loop
// ([Options].Run) have the same bounds, and drain as the library does.
//
// All methods may be called from several goroutines.
package listener
