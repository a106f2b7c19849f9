// Package deploytest runs what deploy/ has for operators: alerts and the dashboard in a real
// Prometheus that scrapes a real node. It has only tests. Those that need a program which is not
// there skip themselves.
package deploytest
