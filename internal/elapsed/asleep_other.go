//go:build !linux

package elapsed

import "time"

// Asleep returns for how long the machine has been suspended in all since it booted. Here that
// can't be told: it is always 0.
func Asleep() time.Duration { return 0 }
