// Package clientaddr finds the address of the client of a request, behind the proxies that the
// operator trusts, and the key under which its requests are counted. Forward-auth and the
// middleware of all clients use the same keys, so their limits count together; a table in
// clients/testdata shows them.
//
// The package reads no requests: callers pass the peer's address and the values of X-Forwarded-For.
package clientaddr
