// Package drive asks limiters for decisions: workloads say which, and a closed or an open loop of
// package load when. It is the one driver of all that is compared.
package drive
