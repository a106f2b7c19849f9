//go:build race

package faulttest

const raceEnabled = true

var raceFlags = []string{"-race"}
