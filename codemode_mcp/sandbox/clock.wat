;; The clock of programs. `binary.with_clock` puts this function in place of the engine's only caller of WASI's
;; `clock_time_get`. The deadlines of the glue do not pass through here.
;;
;; The memory at 109232 is the stack of the engine as shipped, which nothing uses (`binary.prepare` moves the stack). So
;; the clock needs no memory of its own. The host writes and reads it; `clock.py` has the layout, and says why readings
;; become coarse.
(module
  (import "wasi" "0" (func))
  (import "wasi" "1" (func))
  (import "wasi" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))
  (memory 2)

  (func (param $id i32) (param $precision i64) (param $at i32) (result i32)
    (local $errno i32)
    (local $block i32)
    (local $pair i32)
    (local $value i64)
    (local $step i64)
    ;; 0 mode: 0 passes through, 1 records, 2 replays
    (if (i32.eqz (i32.load offset=109232 (i32.const 0)))
      (then
        (return (i32.and (i32.const 65535)
          (call $clock_time_get (local.get $id) (local.get $precision) (local.get $at))))))
    ;; A block for each clock: 0 number of pairs, 4 next pair, 8 readings left, 16 last reading, 24 readings beyond the
    ;; pairs, 32 pairs of a reading and its number.
    (local.set $block
      (i32.add (i32.const 109248) (i32.mul (i32.const 32672) (i32.ne (local.get $id) (i32.const 0)))))
    (if (i32.eq (i32.load offset=109232 (i32.const 0)) (i32.const 2))
      (then
        (if (i64.eqz (i64.load offset=8 (local.get $block)))
          (then
            (if (i32.lt_u (i32.load offset=4 (local.get $block)) (i32.load (local.get $block)))
              (then
                (local.set $pair
                  (i32.add (local.get $block) (i32.shl (i32.load offset=4 (local.get $block)) (i32.const 4))))
                (i64.store offset=16 (local.get $block) (i64.load offset=32 (local.get $pair)))
                (i64.store offset=8 (local.get $block) (i64.load offset=40 (local.get $pair)))
                (i32.store offset=4 (local.get $block)
                  (i32.add (i32.load offset=4 (local.get $block)) (i32.const 1))))
              (else
                (i64.store offset=24 (local.get $block)
                  (i64.add (i64.load offset=24 (local.get $block)) (i64.const 1)))
                (i64.store offset=16 (local.get $block)
                  (i64.add (i64.load offset=16 (local.get $block)) (i64.const 1000000)))
                (i64.store offset=8 (local.get $block) (i64.const 1))))))
        (i64.store offset=8 (local.get $block) (i64.sub (i64.load offset=8 (local.get $block)) (i64.const 1)))
        (i64.store (local.get $at) (i64.load offset=16 (local.get $block)))
        (return (i32.const 0))))
    (local.set $errno (call $clock_time_get (local.get $id) (local.get $precision) (local.get $at)))
    (if (local.get $errno) (then (return (i32.and (local.get $errno) (i32.const 65535)))))
    (local.set $value (i64.load (local.get $at)))
    (local.set $step
      (if (result i64) (i32.ge_u (i32.load (local.get $block)) (i32.const 1024))
        (then (i64.const 50000000))
        (else (select (i64.const 1) (i64.const 1000000) (local.get $id)))))
    (local.set $value (i64.sub (local.get $value) (i64.rem_u (local.get $value) (local.get $step))))
    (if (i64.gt_u (local.get $step) (i64.const 1000000))
      (then
        (if (i64.lt_u (local.get $value) (i64.load offset=16 (local.get $block)))
          (then (local.set $value (i64.load offset=16 (local.get $block)))))))
    (i64.store (local.get $at) (local.get $value))
    (local.set $pair
      (i32.add (local.get $block) (i32.shl (i32.load (local.get $block)) (i32.const 4))))
    (if (i32.load (local.get $block))
      (then
        (if (i64.eq (local.get $value) (i64.load offset=16 (local.get $block)))
          (then
            (i64.store offset=24 (local.get $pair)
              (i64.add (i64.load offset=24 (local.get $pair)) (i64.const 1)))
            (return (i32.const 0))))))
    (if (i32.ge_u (i32.load (local.get $block)) (i32.const 2040))
      (then
        (i64.store offset=24 (local.get $block)
          (i64.add (i64.load offset=24 (local.get $block)) (i64.const 1)))
        (return (i32.const 0))))
    (i64.store offset=32 (local.get $pair) (local.get $value))
    (i64.store offset=40 (local.get $pair) (i64.const 1))
    (i64.store offset=16 (local.get $block) (local.get $value))
    (i32.store (local.get $block) (i32.add (i32.load (local.get $block)) (i32.const 1)))
    (i32.const 0)))
