// Package echogate limits the requests to an Echo server with a [client.Gate]:
//
//	e.Use(echogate.New(gate, client.ByAddress()))
//
// It is one of the packages of a module for frameworks, which users of other ones don't download.
package echogate
