package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"twotier.dev/twotier/internal/ruletest"
)

// testRules runs the tests of a file and prints the steps that fail. It takes the namespaces from
// --config, if given. It asks no server.
func (s *session) testRules(ctx context.Context, flags ruleFlags, path string) error {
	f, err := ruletest.Read(path, flags.config)
	if err != nil {
		return err
	}
	result, err := f.Run(ctx)
	if err != nil {
		return err
	}
	if s.json {
		err = json.NewEncoder(s.Stdout).Encode(result)
	} else {
		err = s.printTests(path, result)
	}
	if err == nil && len(result.Failures) > 0 {
		err = fmt.Errorf("%s: %d of %s failed", path, len(result.Failures),
			countOf(result.Steps, "step"))
	}
	return err
}

// printTests prints the steps that fail or, if there are none, how many did not.
func (s *session) printTests(path string, result *ruletest.Result) error {
	for i := range result.Failures {
		if err := s.printf("%v\n", &result.Failures[i]); err != nil {
			return err
		}
	}
	if len(result.Failures) > 0 {
		return nil
	}
	return s.printf("%s: %s, %s, all as expected\n", path, countOf(result.Tests, "test"),
		countOf(result.Steps, "step"))
}
