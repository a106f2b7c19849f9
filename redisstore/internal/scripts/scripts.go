package scripts

import (
	_ "embed" // the scripts

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/cells.lua
	cellsLua string
	//go:embed lua/epoch.lua
	epochLua string
	//go:embed lua/rounds.lua
	roundsLua string
	//go:embed lua/round.lua
	roundLua string
	//go:embed lua/restore.lua
	restoreLua string
	//go:embed lua/reset.lua
	resetLua string
	//go:embed lua/probe.lua
	probeLua string
	//go:embed lua/payload.lua
	payloadLua string
	//go:embed lua/keys.lua
	keysLua string
	//go:embed lua/commit.lua
	commitLua string
	//go:embed lua/rules.lua
	rulesLua string
	//go:embed lua/meta.lua
	metaLua string
	//go:embed lua/nodes.lua
	nodesLua string
	//go:embed lua/expiry_key.lua
	expiryKeyLua string
	//go:embed lua/expiry_field.lua
	expiryFieldLua string
	//go:embed lua/expiry_tairhash.lua
	expiryTairhashLua string
)

// The ways to expire buckets: by the key's time to live, by one of each field, or by TairHash.
const (
	ExpireKeys     = "key"
	ExpireFields   = "field"
	ExpireTairhash = "tairhash"
)

// Set holds the scripts for one way of expiring buckets. The heads of the files describe them.
type Set struct {
	Round, Restore, Reset, Keys, Commit, Rules, Meta, Nodes *redis.Script
	// CommitText is the text of Commit.
	CommitText string
}

// New returns the scripts for one way of expiring buckets. Those about counts begin with its code.
func New(expiry string) Set {
	prefix := map[string]string{ExpireKeys: expiryKeyLua, ExpireFields: expiryFieldLua,
		ExpireTairhash: expiryTairhashLua}[expiry] + cellsLua + epochLua
	commit, rounds := prefix+commitLua, prefix+roundsLua
	return Set{
		Round:   redis.NewScript(rounds + roundLua),
		Restore: redis.NewScript(rounds + restoreLua),
		Reset:   redis.NewScript(rounds + resetLua),
		Keys:    redis.NewScript(rounds + keysLua),
		Rules:   redis.NewScript(rulesLua),
		Meta:    redis.NewScript(metaLua),
		Nodes:   redis.NewScript(nodesLua),
		Commit:  redis.NewScript(commit), CommitText: commit,
	}
}

// Probe returns the script that tries commands.
func Probe() *redis.Script { return redis.NewScript(probeLua) }

// Payload returns the script that makes a key from a payload.
func Payload() *redis.Script { return redis.NewScript(payloadLua) }
