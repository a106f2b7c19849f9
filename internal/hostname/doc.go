// Package hostname checks the Host header of requests over HTTP, which protects listeners on
// loopback from pages in a browser. All listeners that speak HTTP share it.
package hostname
