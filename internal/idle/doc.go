// Package idle tells whether a connection that was kept for reuse is still open.
package idle
