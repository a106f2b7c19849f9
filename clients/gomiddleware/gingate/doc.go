// Package gingate limits the requests to a Gin server with a [client.Gate]:
//
//	router.Use(gingate.New(gate, client.ByAddress()))
//
// It is one of the packages of a module for frameworks, which users of other ones don't download.
package gingate
