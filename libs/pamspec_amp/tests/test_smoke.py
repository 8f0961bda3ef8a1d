from libs.pamspec_amp.tests.conftest import Tenant, cell, check_cell

async def test_smoke(tenant: Tenant) -> None:
    made = await tenant.call("POST", "/memories", cell(), agent="alpha")
    assert made.status == 201, made.body
    check_cell(made.body)
    one = made.body["id"]
    got = await tenant.call("GET", f"/memories/{one}", agent="alpha")
    print(got)
    assert got.status == 200
    check_cell(got.body)
    for path in ("/health", "/spec", "/memories", "/memories/query?limit=1"):
        print(path, await tenant.call("GET", path, agent="alpha"))
    print(await tenant.call("GET", f"/memories/{one}", agent="beta"))
    print(await tenant.call("PATCH", f"/memories/{one}", {"scoring": {"importance": 0.9}, "content": {"metadata": {"n": 1.10}}}, agent="alpha"))
    print(await tenant.call("POST", "/memories/search", {"query": "depot"}, agent="alpha"))
    print(await tenant.call("DELETE", f"/memories/{one}", agent="alpha"))
    print(await tenant.call("PATCH", f"/memories/{one}", {"lifecycle": {"status": "archived"}}, agent="alpha"))
    print(await tenant.call("DELETE", f"/memories/{one}", agent="alpha"))
    print(await tenant.call("GET", f"/memories/{one}", agent="alpha"))
    print(await tenant.call("PUT", f"/memories/{one}", agent="alpha"))
