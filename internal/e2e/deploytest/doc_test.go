// Package deploytest runs the files in deploy/ for operators: the image, built from its Dockerfile,
// and alerts and the dashboard in a real Prometheus that scrapes a real node. It has only tests.
// Tests skip themselves if a program or privilege they need is missing.
package deploytest
