// Package rival starts what is compared: every limiter with the servers that it needs, each time
// anew, so that no run sees what another has left; and says what each has used. There is one list
// of them, and all that compares takes its rivals from it.
package rival
