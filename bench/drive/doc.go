// Package drive sends decisions to limiters. A workload determines the decisions, and a closed or
// an open loop of package load their times. It drives all rivals.
package drive
