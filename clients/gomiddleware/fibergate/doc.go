// Package fibergate limits the requests to a Fiber server with a [client.Gate]:
//
//	app.Use(fibergate.New(gate, client.FastByAddress()))
//
// It is one of the packages of a module for frameworks, which users of other ones don't download.
package fibergate
