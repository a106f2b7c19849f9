// Package rival starts what is compared: every limiter with the servers that it needs, each time anew, so that no run sees
// what another has left. There is one list of them, and all commands that compare take their rivals from it.
package rival
