package config

import (
	"fmt"
	"strconv"
	"strings"

	"twotier.dev/twotier/httpapi/rule"
)

// Stdout is the path that stands for standard output.
const Stdout = "-"

// outputSettings returns the settings of what a server writes besides its log.
func outputSettings() []setting {
	return []setting{
		{name: "decisions", arg: "FILE",
			help: "append what acquires decided to this file, or write it to stdout if it is -: " +
				"a line of JSON for each rule that judged a key; never waited for; opened again " +
				"on SIGHUP",
			set: func(c *Config, text string) error { c.Decisions = text; return nil }},
		{name: "decisions-sample", def: "1", arg: "SHARE",
			help: "share of them to write: a number from 0 to 1 for all, or by verdict, such as " +
				"refused=1,shadow_refused=1,allowed=0.01, where those left out are not written",
			set: func(c *Config, text string) (err error) {
				c.DecisionsSample, err = parseShares(text)
				return err
			}},
		{name: "access-log", arg: "FILE",
			help: "append a line of JSON about each HTTP request to this file, or write it to " +
				"stdout if it is -; never waited for; opened again on SIGHUP",
			set: func(c *Config, text string) error { c.AccessLog = text; return nil }},
		{name: "access-log-sample", def: "1", arg: "SHARE",
			help: "share of the requests to write, chosen at random: a number from 0 to 1",
			set: func(c *Config, text string) (err error) {
				c.AccessLogSample, err = parseShare(text)
				return err
			}},
	}
}

// checkOutputs refuses one file for two outputs. Stdout can take both.
func (c *Config) checkOutputs() error {
	if c.Decisions != "" && c.Decisions == c.AccessLog && c.Decisions != Stdout {
		return fmt.Errorf("--access-log: --decisions is written to %s already", c.Decisions)
	}
	return nil
}

// parseShares reads a share for all verdicts, or a list of them with shares.
func parseShares(text string) (shares [rule.Verdicts]float64, err error) {
	if !strings.Contains(text, "=") {
		all, err := parseShare(text)
		for v := range shares {
			shares[v] = all
		}
		return shares, err
	}
	given := [rule.Verdicts]bool{}
	for _, part := range strings.Split(text, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(part), "=")
		v, err := rule.ParseVerdict(name)
		if err != nil {
			return shares, err
		}
		if given[v] {
			return shares, fmt.Errorf("%s is there twice", name)
		}
		given[v] = true
		if shares[v], err = parseShare(number); err != nil {
			return shares, err
		}
	}
	return shares, nil
}

// parseShare reads a number from 0 to 1.
func parseShare(text string) (float64, error) {
	share, err := strconv.ParseFloat(text, 64)
	if err != nil || !(share >= 0 && share <= 1) { // NaN compares with nothing
		return 0, fmt.Errorf("%q is not a number from 0 to 1", text)
	}
	return share, nil
}
