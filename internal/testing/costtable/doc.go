// Package costtable reads the table of the costs of all calls in docs/security.md, for the tests
// that compare it with the calls that each listener serves, and with their actual memory.
package costtable
