"""Function words by language: what a text is recognized by, and what no index holds."""

from __future__ import annotations

_TEXTS = {
    "english": """
        a about above after again against all am an and any are aren't as at be because been before being below
        between both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each
        few for from further had hadn't has hasn't have haven't having he he'd he'll he's her here here's hers
        herself him himself his how how's i i'd i'll i'm i've if in into is isn't it it's its itself just let's me
        more most my myself no nor not of off on once only or other our ours ourselves out over own same she she'd
        she'll she's should shouldn't so some such than that that's the their theirs them themselves then there
        there's these they they'd they'll they're they've this those through to too under until up very was wasn't
        we we'd we'll we're we've were weren't what what's when when's where where's which while who who's whom why
        why's will with won't would wouldn't you you'd you'll you're you've your yours yourself yourselves""",
    "german": """
        aber alle allem allen aller alles als also am an ander andere anderen auch auf aus bei bin bis bist da damit
        dann das dass dazu daß dein deine dem den denn der des dessen die dies diese diesem diesen dieser dieses
        doch dort du durch ein eine einem einen einer eines er es etwas euch euer für gegen gewesen hab habe haben
        hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in indem ins ist jede jedem
        jeden jeder jedes jene jetzt kann kein keine können könnte machen man manche mein meine mich mir mit muss
        musste nach nicht nichts noch nun nur ob oder ohne sehr sein seine seinem seinen seiner seit selbst sich sie
        sind so solche soll sollte sondern sonst um und uns unser unter viel vom von vor war waren warst was weg
        weil weiter welche welcher wenn werde werden wie wieder will wir wird wirst wo wollen wollte während würde
        würden zu zum zur zwar zwischen über""",
    "french": """
        ai aie aient ait au aucun aussi autre aux avaient avais avait avec avez avoir avons c'est ce cela ces cet
        cette ceux chaque comme d'un d'une dans de depuis des dont du elle elles en est et eu eux il ils j'ai je la
        le les leur leurs lui mais me mes moi mon même n'est ne nos notre nous on ont ou où par pas pendant peut
        plus pour qu'il que quel quelle quelles quels qui sa sans se sera ses si soit sommes son sont sous sur ta te
        tes toi ton tous tout toute toutes très tu un une vos votre vous y à étaient étais était étant été être""",
    "spanish": """
        a al algo algunos ante antes aquí así como con contra cual cuando de del desde donde dos el ella ellas ellos
        en entre era eran es esa esas ese eso esos esta estaba estado estas este esto estos está están fue fueron ha
        había han has hasta hay he la las le les lo los me mi mis mucho muy más nada ni no nos nosotros nuestra
        nuestro o os otra otro otros para pero poco por porque que quien quién qué se sea ser si sido sin sobre son
        su sus sí también tanto te tengo tiene tienen todo todos tu tus un una uno unos usted y ya yo él""",
    "italian": """
        a abbiamo ad agli ai al alla alle allo anche avere aveva avevano ben c'è che chi ci come con cosa cui da
        dagli dai dal dalla dalle de degli dei del della delle dello dove e ed era erano essere fa fino fra gli ha
        hai hanno ho i il in io la le lei li lo loro lui ma me mi mia mie miei mio molto ne negli nei nel nella
        nelle no noi non nostra nostro o per perché più poco poi può quale quando quanto quella quelle quelli quello
        questa queste questi questo se sei si sia siamo sono sta stata stato su sua sue sugli sui sul sulla suo suoi
        tra tu tua tue tuo tutti tutto un una uno vi voi è""",
    "portuguese": """
        ao aos aquela aquele aquilo as até com como da das de dela dele deles depois do dos e ela elas ele eles em
        entre era eram essa esse esta este está estão eu foi foram há isso isto já lhe mais mas me mesmo meu meus
        minha muito na nas nem no nos nossa nosso num numa não nós o os ou para pela pelo pelos per por qual quando
        que quem se sem ser será seu seus sobre sua suas são só também te tem tenho ter teu teve tinha tudo têm um
        uma umas uns você vocês à às é""",
    "dutch": """
        aan al alles als altijd andere ben bij daar dan dat de der deze die dit doch doen door dus een eens en er ge
        geen geweest haar had heb hebben heeft hem het hier hij hoe hun iemand iets ik in is ja je jij jou jouw kan
        kon kunnen maar me meer men met mij mijn moet na naar niet niets nog nu of om omdat onder ons ook op over
        reeds te tegen toch toen tot u uit uw van veel voor want waren was wat we wel werd wezen wie wij wil worden
        wordt zal ze zei zelf zich zij zijn zo zonder zou""",
    "swedish": """
        alla allt att av blev bli blir de dem den denna deras dess det detta dig din dina ditt du där efter ej eller
        en er ett från för ha hade han hans har henne hennes hon honom hur här i icke inte jag ju kan kunde man med
        mellan men mig min mina mitt mot mycket ni nu när någon något några och om oss på samma sedan sig sin sina
        sitt själv ska skulle som så till under upp ut utan vad var vara varför vem vi vid vilken vår vårt än är åt
        över""",
    "danish": """
        af alle alt anden at blev blive bliver da de dem den denne der deres det dette dig din disse dog du efter
        eller en end er et for fra ham han hans har havde have hende hendes her hos hun hvad hvis hvor i ikke ind
        jeg jer jo kunne man mange med meget men mig min mine mit mod ned noget nogle nu når og også om op os over
        på selv sig sin sine sit skal skulle som sådan thi til ud under var vi vil ville vor være været""",
    "norwegian": """
        alle at av bare begge ble blei bli blir da de deg dem den denne der dere deres det dette di din disse du eg
        ein eit eller en er et etter for fordi fra før ha hadde han hans har hele henne hennes her hun hva hvem hvis
        hvor hvordan hvorfor i ikke inn ja jeg kan kom kun kunne man mange med meg men mi min mine mitt mot mye ned
        noe noen nå når og også om opp oss over på seg selv si sin sine sitt skal skulle slik som så til um upp ut
        uten var vart ved vi vil ville vår være vært""",
    "finnish": """
        ei eikä en että he hän hänen häntä ja jo joka jolla jos jota joten kaikki kanssa koska kuin kuka kun me
        meidän mikä mitä mukaan mutta myös ne niin niitä noin nuo nyt nämä olen oli olin olisi olivat olla on ovat
        se sekä sen siinä sitä tai te teidän tämä tässä tätä vaan vai vain vielä voi""",
    "russian": """
        а без более бы был была были было быть в вам вас весь во вот все всего всех вы где да даже для до его ее ей
        ему если есть еще ещё же за здесь и из или им их к как ко когда кто ли либо мне может мы на над надо наш не
        него нее нет ни них но ну о об однако он она они оно от очень по под при с со так также такой там те тем то
        того тоже той только том ты у уже хотя чего чей чем что чтобы чье чья эта эти это этого этой этом этот я""",
}

STOP_WORDS = {name: frozenset(text.split()) for name, text in _TEXTS.items()}
"""In lower case."""
