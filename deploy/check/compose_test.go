package check

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// TestComposeLoads loads the project with Compose's own library. twotier accepts the settings of
// each node, mounted files exist, and nodes have enough time to stop.
func TestComposeLoads(t *testing.T) {
	details := types.ConfigDetails{WorkingDir: "../compose", Environment: types.Mapping{},
		ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml",
			Content: read(t, "compose", "compose.yaml")}}}
	project, err := loader.LoadWithContext(t.Context(), details)
	if err != nil {
		t.Fatal(err)
	}
	nodes := 0
	for name, service := range project.Services {
		for _, v := range service.Volumes {
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if !strings.HasPrefix(name, "node-") {
			continue
		}
		nodes++
		var environ []string
		for key, value := range service.Environment {
			environ = append(environ, key+"="+*value)
		}
		needs := accepted(t, environ).stopping(t)
		if has := time.Duration(*service.StopGracePeriod); has <= needs {
			t.Errorf("%s has %v for stopping, which takes up to %v", name, has, needs)
		}
	}
	if nodes != 3 {
		t.Errorf("%d nodes", nodes)
	}
}
