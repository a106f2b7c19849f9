// Package near keeps short-lived answers close to who asks: what is lost, or was never taken in, is found out again where it is
// known. It is a cache (ristretto) in front of an owner on another node, and decides nothing: nothing that was counted may
// ever live here.
package near
