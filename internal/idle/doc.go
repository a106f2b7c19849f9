// Package idle tells whether a connection that is kept for later is still good.
package idle
