package connect

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/redisstore/internal/scripts"
)

// TestCommandsOfTheScriptsAreProbed looks for commands in the text of the scripts.
func TestCommandsOfTheScriptsAreProbed(t *testing.T) {
	files, err := filepath.Glob("../scripts/lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	probed := []string{"restore"} // see acceptsPayload
	for _, e := range []string{scripts.ExpireKeys, scripts.ExpireFields,
		scripts.ExpireTairhash} {
		for _, c := range slices.Concat(commonCommands(), expiryCommands(e)) {
			probed = append(probed, c.name)
		}
	}
	quoted := regexp.MustCompile(`'([A-Z]{3,})'`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		for _, found := range quoted.FindAllStringSubmatch(string(text), -1) {
			name := strings.ToLower(found[1])
			if !slices.Contains(probed, name) &&
				!slices.Contains([]string{"absttl", "fields", "outofreach", "replace"}, name) {
				t.Errorf("%s uses %s, which is not probed", file, found[1])
			}
		}
	}
}
