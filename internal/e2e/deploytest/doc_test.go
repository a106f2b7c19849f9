// Package deploytest runs what deploy/ has for operators: the image, built from its Dockerfile, and
// alerts and the dashboard in a real Prometheus that scrapes a real node. It has only tests. Those
// that need a program or a privilege which is not there skip themselves.
package deploytest
