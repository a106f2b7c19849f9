//go:build !race

package faulttest

const raceEnabled = false

var raceFlags []string
