// Package drive asks limiters for decisions. Workloads say which decisions, and a closed or an open
// loop of package load says when. It drives everything that is compared.
package drive
